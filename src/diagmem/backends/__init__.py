"""What a plan is handed on as: C, or a .tflite file."""
