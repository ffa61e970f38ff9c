// Doubles apart by the place of their bytes: all lowest bytes, then all second ones, ... What has
// the same sign, exponent and leading digits becomes runs that a fast compressor shortens.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::server {

// `out` holds 8 * `count` bytes. Bits are kept, NaN payloads too. Thread-safe.
void ShuffleBytes(const void* words, size_t count, uint8_t* out);
void UnshuffleBytes(const uint8_t* in, size_t count, void* words);

}  // namespace plumbline::server
