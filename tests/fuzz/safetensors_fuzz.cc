// libFuzzer: arbitrary bytes as a safetensors dump.
#include "tests/fuzz/audit_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plumbline::audit::AuditBytes(data, size, "safetensors");
  return 0;
}
