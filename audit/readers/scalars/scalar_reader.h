// The reader of all formats that hold scalars: joins the files of a run, finds its ranks, series
// and attempts, and gives it out step by step, as an agent's run record would.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/run_points.h"

namespace plumbline::audit {

// One format. A file's points are read whole before the first is given out, since where an attempt
// ends only its own files tell: 8 or 16 bytes a point, at most PointLimits.
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
// What the user says to files of a format: --run names the run of the `first` format that has
// files, runs of others are within it, and a note of `report` says so. `first` may be this one's
// own.
ScalarOptions NextToFormat(ScalarOptions options, std::string_view format, std::string_view first,
                           InputReport* report);
// Which reads a file that none recognises because its column of steps has a name of its own, which
// the user says; nullptr: none.
const Reader* ReaderByStep(std::string_view path, std::string_view head, const std::string& step);
// All of them; what is told by its bytes before what is told by its words.
std::vector<const Reader*> ScalarReaders();

}  // namespace plumbline::audit
