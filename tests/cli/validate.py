#!/usr/bin/env python3
"""validate.py SCHEMA: whether the JSON on standard input is what the schema says."""
import json
import sys

import jsonschema

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
validator = jsonschema.Draft202012Validator(schema)
validator.check_schema(schema)
problems = list(validator.iter_errors(json.load(sys.stdin)))
for problem in problems:
    place = "/".join(str(part) for part in problem.absolute_path)
    print(f"{place or '.'}: {problem.message[:300]}")
sys.exit(1 if problems else 0)
