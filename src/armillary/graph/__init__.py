"""Graph learning."""
