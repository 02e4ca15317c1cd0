import sys

print(f"{sys.argv[1]} from a program with {len(sys.argv) - 1} arguments")
