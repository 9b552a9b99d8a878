"""The pictures of the course: one module a part of it, one function a picture, and what they are all drawn with."""
