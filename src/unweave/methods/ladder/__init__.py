"""The choice between the methods: what each is believed to close, and at what cost. Uses methods and below."""
