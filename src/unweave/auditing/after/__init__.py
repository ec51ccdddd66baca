"""After a request was carried out: the attacks, one file each."""
