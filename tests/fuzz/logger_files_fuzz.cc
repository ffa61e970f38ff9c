// libFuzzer: arbitrary bytes as files of SwanLab (and as its records, with valid checksums), Comet,
// Sacred, as a notebook and as an export of a log service; the first byte selects the format.
#include "audit/readers/input/json_cursor.h"
#include "audit/readers/log_document/log_export.h"
#include "audit/readers/log_document/notebook.h"
#include "tests/audit/scalars/scalar_files.h"
#include "tests/fuzz/point_bytes.h"

namespace {

using namespace plumbline::audit;

void ReadText(std::string_view bytes, const PointFormat& format) {
  ReadPointBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), format);
}

// Returns the bytes as two records of a SwanLab run of this version.
std::string SwanlabRun(std::string_view text, char version) {
  plumbline::audit::testing::WandbRun run;
  const size_t cut = text.empty() ? 0 : static_cast<unsigned char>(text[0]) % text.size();
  run.Record(std::string(text.substr(0, cut))).Record(std::string(text.substr(cut)));
  return std::string(":SWL\xd6\xe1") + version + run.bytes().substr(7);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      ReadText(text, SwanlabFormat());
      break;
    case 1:
      ReadText(SwanlabRun(text, 1), SwanlabFormat());
      break;
    case 2:
      ReadText(SwanlabRun(text, 2), SwanlabFormat());
      break;
    case 3:
      ReadText(text, CometFormat());
      break;
    case 4:
      ReadText(text, SacredFormat());
      break;
    default:
      if (!IsUtf8(OutputOfNotebook(text)) || !IsUtf8(LinesOfExport(text))) __builtin_trap();
  }
  return 0;
}
