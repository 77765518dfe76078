"""Real small data that ships with packages, and generators that several methods share."""
