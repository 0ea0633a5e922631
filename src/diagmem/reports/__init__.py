"""Tables, figures and pages that a person can judge."""
