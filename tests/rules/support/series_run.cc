#include "tests/rules/support/series_run.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/rules/support/spec_values.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

// A series, step by step.
class Curve {
 public:
  Curve(const std::string& name, const std::string& text) : draw_(SeedOf(name)) {
    std::istringstream in(text);
    std::string item;
    while (in >> item) Take(item);
    if (parts_.empty()) throw std::runtime_error(name + ": no value");
  }

  bool on(int rank) const { return rank_ < 0 || rank_ == rank; }

  // Call with steps in ascending order. If the step has no value, returns nullopt.
  std::optional<double> At(int step) {
    const double noise = sd_ > 0 ? std::exp(sd_ * draw_.Normal()) : 1;
    if (const auto found = single_.find(step); found != single_.end()) return found->second;
    return Plain(step) * noise;
  }

 private:
  struct Part {
    int step;
    double value;
    bool line;  // reached on a straight line
  };

  static uint64_t SeedOf(const std::string& name) {
    uint64_t seed = 1;
    for (const char c : name) seed = seed * 131 + static_cast<unsigned char>(c);
    return seed;
  }

  void Take(const std::string& item) {
    const size_t mark = item.find_first_of(":>!");
    if (item[0] == '~') {
      sd_ = std::stod(item.substr(1));
    } else if (item[0] == '@') {
      rank_ = std::stoi(item.substr(1));
    } else if (mark == std::string::npos) {
      parts_.push_back({0, std::stod(item), false});
    } else if (item[mark] == '!') {
      const std::string value = item.substr(mark + 1);
      single_[std::stoi(item)] =
          value == "none" ? std::nullopt : std::optional<double>(std::stod(value));
    } else {
      parts_.push_back({std::stoi(item), std::stod(item.substr(mark + 1)), item[mark] == '>'});
    }
  }

  double Plain(int step) const {
    size_t next = 1;
    while (next < parts_.size() && parts_[next].step <= step) ++next;
    const Part& from = parts_[next - 1];
    if (next == parts_.size() || !parts_[next].line) return from.value;
    const Part& to = parts_[next];
    const double t = static_cast<double>(step - from.step) / (to.step - from.step);
    return from.value + t * (to.value - from.value);
  }

  Draw draw_;
  double sd_ = 0;
  int rank_ = -1;
  std::vector<Part> parts_;
  std::map<int, std::optional<double>> single_;
};

v1::Batch Attempt(const std::string& text) {
  int steps = 100, first = 0, every = 1, ranks = 1, attempt = 0;
  SpecFields fields;
  fields.whole = {{"steps", &steps},
                  {"first", &first},
                  {"every", &every},
                  {"ranks", &ranks},
                  {"attempt", &attempt}};
  std::vector<std::pair<std::string, Curve>> curves;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals), value = line.substr(equals + 3);
    if (fields.whole.contains(key)) {
      SetField(fields, key, value);
    } else {
      curves.emplace_back(key, Curve(key, value));
    }
  }
  v1::Batch batch;
  for (int rank = 0; rank < ranks; ++rank) {
    *batch.add_sources() =
        test::SourceOf("r", static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks),
                       static_cast<uint32_t>(attempt));
  }
  for (int step = first; step < first + steps; step += every) {
    for (auto& [name, curve] : curves) {
      const std::optional<double> value = curve.At(step);
      for (int rank = 0; rank < ranks && value; ++rank) {
        if (curve.on(rank))
          test::AddScalar(&batch, name, step, *value).set_source(static_cast<uint32_t>(rank));
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank)
    test::AddProgress(&batch, first + steps - 1).set_source(static_cast<uint32_t>(rank));
  return batch;
}

}  // namespace

std::vector<v1::Batch> SeriesRun(const std::string& text) {
  std::vector<v1::Batch> batches;
  std::istringstream in(text);
  std::string line, part;
  while (std::getline(in, line)) {
    if (line == "---") {
      batches.push_back(Attempt(part));
      part.clear();
    } else {
      part += line + "\n";
    }
  }
  batches.push_back(Attempt(part));
  return batches;
}

}  // namespace plumbline::rules::testing
