#include "tests/fuzz/point_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

void RequireOfPoints(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

class CheckingSink : public PointSink {
 public:
  explicit CheckingSink(PointNames names) : names_(names) {}

  uint32_t Column(std::string_view name) override {
    // A sink may run out of columns.
    if (names_ == PointNames::kAny) return columns_ < 1000 ? columns_++ : kNoColumn;
    RequireOfPoints(name.size() <= 1024 && IsUtf8(name), "a plain name");
    for (const char c : name)
      RequireOfPoints(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F, "a plain name");
    // A sink may run out of columns.
    return columns_ < 1000 ? columns_++ : kNoColumn;
  }
  void Add(int64_t step, uint32_t column, double value) override {
    RequireOfPoints(column == kNoColumn || column < columns_, "a column that was given");
    if (column == kNoColumn) return;
    char text[96];
    std::snprintf(text, sizeof text, "%lld %u %a\n", static_cast<long long>(step), column, value);
    text_ += text;
  }
  void Resumed() override { text_ += "resumed\n"; }
  void Unplaced(uint64_t values) override { text_ += "unplaced " + std::to_string(values) + "\n"; }
  void Belongs(std::string_view run, int64_t rank) override {
    RequireOfPoints(IsUtf8(run), "a plain name of the run");
    text_ += "belongs " + std::string(run) + " " + std::to_string(rank) + "\n";
  }
  std::string text_;

 private:
  const PointNames names_;
  uint32_t columns_ = 0;
};

}  // namespace

std::string ReadPointBytes(const uint8_t* data, size_t size, const PointFormat& format,
                           PointNames names) {
  const int fd = memfd_create("input", MFD_CLOEXEC);
  RequireOfPoints(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size), "an input file");
  InputReport report;
  report.path = "/proc/self/fd/" + std::to_string(fd);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  format.recognise(report.path, bytes.substr(0, Reader::kHeadBytes));
  CheckingSink sink(names);
  const std::unique_ptr<PointFile> file = format.open(&report, {});
  if (file == nullptr) {
    RequireOfPoints(report.failed(), "a file that cannot be opened has a problem");
    close(fd);
    return "";
  }
  while (file->Read(&sink)) {
  }
  file->Close(&sink);
  close(fd);
  for (const Problem& problem : report.problems)
    RequireOfPoints(problem.text.starts_with("expected "), problem.text.c_str());
  return std::move(sink.text_);
}

}  // namespace plumbline::audit
