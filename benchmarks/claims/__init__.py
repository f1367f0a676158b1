"""Claims of the five papers, each with its verdict, one module a paper."""
