// libFuzzer: arbitrary bytes as rollout records; the first byte selects the format.
#include "tests/fuzz/audit_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr const char* kFormats[] = {"rollout-jsonl", "prime-rl", "nemo-rl", ""};
  if (size == 0) return 0;
  plumbline::audit::AuditBytes(data + 1, size - 1, kFormats[data[0] % 4]);
  return 0;
}
