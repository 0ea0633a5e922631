"""What recorded loads and stores say."""
