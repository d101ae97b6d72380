"""The preset ``paper``: the inner loop of CONCLAD as it was published.

Amanda Rios, Ibrahima Ndiour, Parual Datta, Omesh Tickoo, Nilesh Ahuja: "CONCLAD: COntinuous Novel
CLAss Detector", 2024 (arXiv:2412.10473), section 2.2 and appendix 4.1.
"""
