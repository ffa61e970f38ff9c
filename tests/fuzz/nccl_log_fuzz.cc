// libFuzzer: arbitrary bytes as a log of NCCL.
#include "tests/fuzz/audit_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plumbline::audit::AuditBytes(data, size, "nccl-log");
  return 0;
}
