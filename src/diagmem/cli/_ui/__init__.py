"""`diagmem ui` behind its command: a page that plans what is dropped on it, served to this machine alone.

The pipeline is that of the API, pages and pictures are those of the report: here is only what lies between them and a
browser.
"""
