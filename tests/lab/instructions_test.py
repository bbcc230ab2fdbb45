#!/usr/bin/env python3
"""instructions.py, on what `perdure bench limits` answers."""

import unittest

from instructions import ROUNDS_MAX, WANTED, judge_until_answered

POST = "instructions before the post"
MESSAGE = f"{POST}, write and message"
GATHERS = "instructions of an append that gathers"


def findings(**changes):
    """What was counted, with these changes by the question's last word."""
    all_of_them = []
    for name, (method, most) in WANTED.items():
        changed = changes.get(name.split()[-1], {})
        ours = changed.get("ours", most)
        note = f"from Log::append to there, by {changed.get('method', method)} (mhp)"
        failure = changed.get("failure", "")
        all_of_them.append({"name": name, "ours": None if failure else ours,
                            "note": "" if failure else note, "failure": failure})
    return all_of_them


def judge(*rounds):
    """What is wrong with these answers in turn; the last one is repeated."""
    asked = []

    def ask():
        asked.append(rounds[min(len(asked), len(rounds) - 1)])
        return asked[-1]

    return judge_until_answered(ask, WANTED), len(asked)


class Instructions(unittest.TestCase):
    def test_what_is_wanted_and_a_tenth_passes(self):
        self.assertEqual(judge(findings()), ([], 1))
        self.assertEqual(judge(findings(post={"ours": 330}, message={"ours": 396},
                                        gathers={"ours": 165})), ([], 1))

    def test_more_is_named_with_its_bound(self):
        for word, ours, name in [("post", 331, POST), ("message", 397, MESSAGE),
                                 ("gathers", 166, GATHERS)]:
            wrong, _ = judge(findings(**{word: {"ours": ours}}))
            self.assertEqual(len(wrong), 1, wrong)
            self.assertIn(f"{name}: {ours} by ", wrong[0])
            self.assertIn(" and a tenth is the most", wrong[0])

    def test_no_answer_is_a_failure(self):
        wrong, _ = judge(findings(gathers={"failure": "no ptrace here"}))
        self.assertEqual(wrong, [f"{GATHERS}: no answer: no ptrace here"])
        wrong, _ = judge([])
        self.assertEqual(len(wrong), len(WANTED))

    def test_another_method_is_asked_again(self):
        general = findings(message={"ours": 946, "method": "write-send-ack"})
        self.assertEqual(judge(general, findings()), ([], 2))
        wrong, rounds = judge(general)
        self.assertEqual(rounds, ROUNDS_MAX)
        self.assertEqual(len(wrong), 1)
        self.assertIn("never by write-send-flush-ack", wrong[0])
        self.assertIn("but by write-send-ack", wrong[0])

    def test_a_loss_seen_in_a_later_round_counts(self):
        general = findings(post={"method": "write-send-ack"})
        wrong, _ = judge(general, findings(post={"ours": 400}))
        self.assertEqual(len(wrong), 1)


if __name__ == "__main__":
    unittest.main()
