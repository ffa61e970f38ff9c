// protoc generates two tables per file whose names do not depend on the file. If several generated
// files are compiled together (PLUMBLINE_UNITY), UNITY_FILE, which differs in each file, makes
// these names unique.
#pragma once

#define PLUMB_JOINED(name, file) name##_##file
#define PLUMB_JOIN(name, file) PLUMB_JOINED(name, file)
#define schemas PLUMB_JOIN(schemas, UNITY_FILE)
#define file_default_instances PLUMB_JOIN(file_default_instances, UNITY_FILE)
