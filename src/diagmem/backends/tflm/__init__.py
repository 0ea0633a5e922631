"""Plans for stock TensorFlow Lite Micro: written into .tflite files, read from them, and run.

flatbuffer: metadata and operator order of a file. metadata: a plan in TFLM's form. greedy: TFLM's own planner.
planned_file: from plans to files and back. runtime, worker, compare: TFLM's interpreter. arena: what to set aside.
"""

PLAN_ENTRY = "OfflineMemoryAllocation"
"""The name of the metadata that hold a plan."""
