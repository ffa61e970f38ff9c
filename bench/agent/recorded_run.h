// Opens a run like a trainer. Its record is deleted when the program ends.
#pragma once

#include <cstdint>

#include "plumbline/agent.h"
#include "tests/support/files.h"

inline plumbline::Run Open(uint32_t every) {
  static const plumbline::test::TempFolder folder;
  return plumbline::Run(
      plumbline::RunOptions{.run = "bench", .record = folder.path(), .every = every});
}
