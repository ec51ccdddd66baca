"""The service over HTTP: who asks, how often, how much; what is asked, and what is answered."""
