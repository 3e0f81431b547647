# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The parts of tests/run, which is the one program that runs every test."""
