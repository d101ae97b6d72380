"""The landscape painter of the demo: procedural overhead scenes."""
