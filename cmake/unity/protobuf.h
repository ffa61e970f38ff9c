// protoc gives two tables of each file a name that does not tell the file. Where several generated
// files are compiled together (PLUMBLINE_UNITY) these names are told apart by UNITY_FILE, another
// word in each file.
#pragma once

#define PLUMB_JOINED(name, file) name##_##file
#define PLUMB_JOIN(name, file) PLUMB_JOINED(name, file)
#define schemas PLUMB_JOIN(schemas, UNITY_FILE)
#define file_default_instances PLUMB_JOIN(file_default_instances, UNITY_FILE)
