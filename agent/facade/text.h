// Names that are passed to the agent: they become protobuf strings, which must be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::facade {

inline constexpr size_t kMaxNameBytes = 512;

enum class NameFault { kNone, kMissing, kTooLong, kNotUtf8 };

// Returns the fault of a name; kMissing for NULL and "".
NameFault CheckName(const char* name);

// Returns "is missing", "is longer than 512 bytes", "is not UTF-8". Static storage.
const char* Describe(NameFault fault);

// Returns FNV-1a, 64 bits, of the string with its NUL, continuing from `seed`.
uint64_t HashName(const char* name, uint64_t seed = 0xcbf29ce484222325u);

// Returns the last PLUMBLINE_MAX_FILE bytes of a file's name, from the beginning of a character on.
const char* EndOfFile(const char* file);

// Returns a copy on the process's heap; nullptr if out of memory.
char* CopyName(const char* name);

}  // namespace plumbline::facade
