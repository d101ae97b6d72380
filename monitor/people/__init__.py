"""What people do to the state: answer questions, correct classes, choose detector versions."""
