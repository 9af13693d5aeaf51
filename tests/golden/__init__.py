"""Values of version 0.1.0 that later versions are held to."""
