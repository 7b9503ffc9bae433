#!/usr/bin/env python3
"""Writes an object of which every field is at the bound that its schema gives it. Standard library only.

    at_bounds.py KIND NAMESPACE NAME [OPTION=VALUE...] <definitions      definitions: kubectl get crds -o json

        bytes=N           the most bytes of the object, as JSON: texts are shortened evenly until it has no more
        free=N            the numbers in each field of any form, such as a Pod's spec (default 1)
        .PATH=VALUE       a field that the schema does not say enough of; VALUE is JSON, `null` leaves the field out

The rules of the schema (CEL) are obeyed as far as they are bounds: the length of keys, a sum of sizes, one field of two.
What the API server refuses nevertheless has a rule that is not known here.
"""
import json
import re
import sys

# The length of texts and keys of which the schema bounds none.
TEXT, KEY = 128, 63


class Bounds:
    def __init__(self, longest, free, given):
        self.longest, self.free, self.given = longest, free, given

    def value(self, schema, path, n=0):
        """Returns the largest value of a schema. `n` tells the items of a list apart."""
        if path in self.given:
            return self.given[path]
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return {"x": [0] * self.free}
        kind = schema.get("type")
        if kind == "object":
            return self.map(schema, path) if "additionalProperties" in schema else self.object(schema, path, n)
        if kind == "array":
            count = 1 if "[]" in path else schema.get("maxItems", 1)  # a list within a list would be their product
            return [self.value(schema["items"], path + "[]", n) for n in range(count)]
        if kind == "string":
            return self.text(schema, n)
        return True if kind == "boolean" else int(schema.get("maximum", 1))

    def object(self, schema, path, n):
        names = list(schema.get("properties", {}))
        for rule in rules(schema):
            # One of two: this item has the first, the next has the second.
            two = re.findall(r"has\(self\.(\w+)\)", rule)
            if len(two) == 2 and all(self.given.get(f"{path}.{one}", self) is not None for one in two):
                names.remove(two[(n + 1) % 2])
        values = {name: self.value(schema["properties"][name], f"{path}.{name}", n) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def map(self, schema, path):
        count, size = schema.get("maxProperties", 1), schema["additionalProperties"].get("maxLength", TEXT)
        key = KEY
        for rule in rules(schema):
            for bound in re.findall(r"\.size\(\) <= (\d+)", rule):
                key = int(bound)
            for bound in re.findall(r"\.sum\(\) <= (\d+)", rule):
                key = min(key, 32)
                size = min(size, int(bound) // count - key)
        size, key = min(size, self.longest), max(8, min(key, self.longest))
        return {f"{'k' * (key - 6)}{n:06}": "v" * size for n in range(count)}

    def text(self, schema, n):
        if "enum" in schema:
            return schema["enum"][-1]
        size = min(schema.get("maxLength", TEXT), self.longest)
        number = str(n)
        text = "x" * (size - len(number)) + number if size > len(number) else number
        # A path, or the mode of a file, where nothing else is let in.
        pattern = schema.get("pattern", "").replace("[:cntrl:]", r"\x00-\x1f")
        return next((fits for fits in (text, "/" + text[1:], "0666") if re.search(pattern, fits)), text)


def rules(schema):
    return [one["rule"] for one in schema.get("x-kubernetes-validations", [])]


def made(definition, namespace, name, bounds):
    version = definition["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    names = definition["spec"]["names"]
    metadata = {"name": name} if definition["spec"]["scope"] == "Cluster" else {"name": name, "namespace": namespace}
    return {
        "apiVersion": f"{definition['spec']['group']}/{version['name']}",
        "kind": names["kind"],
        "metadata": metadata,
        "spec": bounds.value(spec, ""),
    }


def main(kind, namespace, name, *options):
    options = dict(option.split("=", 1) for option in options)
    given = {path: json.loads(value) for path, value in options.items() if path.startswith(".")}
    most, free = int(options.get("bytes", 1 << 30)), int(options.get("free", 1))
    items = json.load(sys.stdin)["items"]
    definition = next(item for item in items if item["spec"]["names"]["kind"] == kind and item["spec"]["group"] == "akri.sh")
    low, high, best = 1, 1 << 17, None
    while low <= high:
        longest = (low + high) // 2
        text = json.dumps(made(definition, namespace, name, Bounds(longest, free, given)), separators=(",", ":"))
        if len(text.encode()) <= most:
            best, low = text, longest + 1
        else:
            high = longest - 1
    if best is None:
        raise SystemExit(f"at_bounds: with texts of one character {kind} {name} has more than {most} bytes")
    print(best)


if __name__ == "__main__":
    main(*sys.argv[1:])
