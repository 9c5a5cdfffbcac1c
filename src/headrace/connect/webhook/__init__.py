"""Changes posted to whoever wants to hear of them."""
