"""What makes a list of objects of what a network says about every place of an image."""
