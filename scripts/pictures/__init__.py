"""The pictures of the course: one module per group of lessons, one function per picture, plus shared drawing code."""
