"""What a plan is handed on as: C, a .tflite file, or JSON."""
