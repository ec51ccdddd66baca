"""Before a request is carried out: what drives it, what it would damage, whether it is out of the ordinary."""
