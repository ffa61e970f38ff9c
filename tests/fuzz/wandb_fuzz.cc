// libFuzzer: arbitrary bytes as a .wandb file, then as records whose checksums fit.
#include "tests/audit/scalars/scalar_files.h"
#include "tests/fuzz/audit_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plumbline::audit::AuditBytes(data, size, "wandb");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  plumbline::audit::testing::WandbRun file;
  // Two records, cut where the first byte says.
  const size_t cut = size == 0 ? 0 : data[0] % size;
  file.Record(std::string(text.substr(0, cut))).Record(std::string(text.substr(cut)));
  const std::string& bytes = file.bytes();
  plumbline::audit::AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                               "wandb");
  return 0;
}
