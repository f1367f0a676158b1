"""Base classes of protocols, and the declarations that the rest of the library reads."""
