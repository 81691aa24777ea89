#!/usr/bin/env python3
"""The problems that figures.py finds in measured figures."""
import unittest

import figures

CELLS = {cell: 1000 for cell in figures.CELLS}


def measured(clocks, cells):
    return {"clock_mhz": clocks, "cells": cells}


class Problems(unittest.TestCase):
    known = measured(
        {"25-6-1": {"1": 130.0, "2": 140.0}, "25-8-1": {"1": 160.0}, "85-8-1-128": {"1": 105.0}}, {"1": CELLS, "1-128": CELLS}
    )

    def problems(self, clocks, cells=CELLS):
        return figures.problems_of(self.known, measured(clocks, {"1": cells}))

    def test_what_is_measured_reaches_the_limit(self):
        self.assertEqual(self.problems({"25-6-1": {"1": 125.0, "2": 140.0}, "25-8-1": {"1": 156.25}}), [])
        self.assertEqual(
            self.problems({"25-6-1": {"1": 124.9, "2": 140.0}, "25-8-1": {"1": 156.2}}),
            ["clock 25-6-1: 124.9 MHz, below the limit of 125", "clock 25-8-1: 156.2 MHz, below the limit of 156.25"],
        )

    def test_wider_words_have_no_limit(self):
        self.assertEqual(self.problems({"85-8-1-128": {"1": 105.0}}), [])

    def test_a_clock_far_below_the_files_is_a_problem(self):
        self.assertEqual(len(self.problems({"85-8-1-128": {"1": 94.0}})), 1)

    def test_cells_have_a_limit(self):
        known = measured({}, {"1": {**CELLS, "TRELLIS_COMB": 9000}})
        found = measured({}, {"1": {**CELLS, "TRELLIS_COMB": 9001}})
        self.assertEqual(figures.problems_of(known, found), ["9001 cells of module 1, above the limit of 9000"])


if __name__ == "__main__":
    unittest.main()
