// Reads files of rollout records, one JSON object per line: our own format, and others through a
// ColumnMap.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/rollout/columns.h"

namespace plumbline::audit {

class RolloutReader : public Reader {
 public:
  // Recognises a file if one of its first lines has `enough` of the keys at the top level. `map`
  // must outlive the reader.
  RolloutReader(const ColumnMap& map, std::vector<std::string> keys, size_t enough)
      : map_(map), keys_(std::move(keys)), enough_(enough) {}

  std::string_view format() const override { return map_.format; }
  bool Recognise(std::string_view path, std::string_view head) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;

 private:
  const ColumnMap& map_;
  std::vector<std::string> keys_;
  size_t enough_;
};

// All have static storage.
const Reader& NativeRollouts();
const Reader& PrimeRlRollouts();
const Reader& NemoRlRollouts();

}  // namespace plumbline::audit
