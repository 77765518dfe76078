"""Methods for retrieval, memory and long context."""
