// libFuzzer: arbitrary bytes as a .wandb file, then as records with valid checksums: reads the
// points of each input, and for one in sixteen, selected by its size, runs the whole audit, which
// costs a hundred times as much.
#include "tests/audit/scalars/scalar_files.h"
#include "tests/fuzz/audit_bytes.h"
#include "tests/fuzz/point_bytes.h"

namespace {

void Take(const uint8_t* data, size_t size, bool audit) {
  using namespace plumbline::audit;
  ReadPointBytes(data, size, WandbFormat(), PointNames::kAny);
  if (audit) AuditBytes(data, size, "wandb");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bool audit = size % 16 == 0;
  Take(data, size, audit);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  plumbline::audit::testing::WandbRun file;
  // Two records, cut at the position of the first byte.
  const size_t cut = size == 0 ? 0 : data[0] % size;
  file.Record(std::string(text.substr(0, cut))).Record(std::string(text.substr(cut)));
  const std::string& bytes = file.bytes();
  Take(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), audit);
  // The whole input as several equal records: they are read on the fast path.
  plumbline::audit::testing::WandbRun rows;
  for (int i = 0; i < 3; ++i) rows.Record(std::string(text));
  const std::string& alike = rows.bytes();
  Take(reinterpret_cast<const uint8_t*>(alike.data()), alike.size(), audit);
  return 0;
}
