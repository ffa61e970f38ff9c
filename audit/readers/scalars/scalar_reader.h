// Reads all formats that hold scalars. Joins the files of a run, finds its ranks, series and
// attempts, and returns the run step by step, like the run record of an agent.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/run_points.h"

namespace plumbline::audit {

// The reader of one format. Reads all points before it returns the first, because only a run's own
// files show where an attempt ends. This takes 8 or 16 bytes per point, at most PointLimits.
class ScalarReader : public Reader {
 public:
  explicit ScalarReader(const PointFormat& format, PointLimits limits = {})
      : format_(format), limits_(limits) {}

  std::string_view format() const override { return format_.name; }
  const PointFormat& points() const { return format_; }
  bool Recognise(std::string_view path, std::string_view head) const override {
    return format_.recognise(path, head);
  }
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override {
    return OpenWith(files, {});
  }
  std::vector<std::unique_ptr<Source>> OpenWith(const std::vector<InputReport*>& files,
                                                const ReaderOptions& options) const override;

 private:
  const PointFormat& format_;
  const PointLimits limits_;
};

// Static storage.
const Reader& TensorBoardReader();
const Reader& WandbReader();
// Applies the user's --run to files of a format. It is the name of the run in the `first` format
// that has files. Runs of other formats get it as a prefix, with a note in `report`. `first` may
// equal `format`.
ScalarOptions NextToFormat(ScalarOptions options, std::string_view format, std::string_view first,
                           InputReport* report);
// Returns the reader of a file that no reader recognises by itself, because only the user knows the
// name of its step column. Returns nullptr if there is none.
const Reader* ReaderByStep(std::string_view path, std::string_view head, const std::string& step);
// Returns all readers. Those that recognise a file by its bytes precede those that use its words.
std::vector<const Reader*> ScalarReaders();

}  // namespace plumbline::audit
