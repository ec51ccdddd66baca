"""An audit as one page that opens offline. Uses auditing.audit and below."""
