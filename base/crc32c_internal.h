// The portable form of Crc32c, for processors without the instruction and for the tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::internal {

uint32_t Crc32cTable(const void* data, size_t size, uint32_t crc);

}  // namespace plumbline::internal
