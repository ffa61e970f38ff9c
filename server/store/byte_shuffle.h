// Splits doubles by the position of their bytes: all lowest bytes, then all second ones, ... Equal
// signs, exponents and leading digits become runs that a fast compressor shortens.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::server {

// `out` holds 8 * `count` bytes. All bits are kept, also of NaN payloads. Thread-safe.
void ShuffleBytes(const void* words, size_t count, uint8_t* out);
void UnshuffleBytes(const uint8_t* in, size_t count, void* words);

}  // namespace plumbline::server
