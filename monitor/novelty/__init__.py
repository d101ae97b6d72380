"""The mathematics: what is known, how new an image or a pool is, and how new classes are learnt.

It implements CONCLAD (Amanda Rios, Ibrahima Ndiour, Parual Datta, Omesh Tickoo and Nilesh Ahuja,
"CONCLAD: COntinuous Novel CLAss Detector", 2024, arXiv:2412.10473). ``paper`` follows the text,
``robust`` is what users get; the classes, their subspaces and the inner loop are common to both.
``docs/method.md`` says which equation is where. Arrays in, values out: no files, clock or network.
"""
