// One rank's checkpoint of one step: the tensors of all its files, as sites of evidence.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/contents.h"
#include "audit/readers/checkpoint/plan.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// A tensor and the site that it is evidence of.
struct SitedTensor {
  size_t file = 0;  // of the checkpoint's
  StoredTensor place;
  std::string layer, op, role;
  std::string replicas;        // of TensorState
  uint32_t call = 0;           // n-th of this site
  std::optional<double> rate;  // a parameter that an optimizer holds: its group's
  // Of a second moment: how its group computes and uses it.
  std::optional<double> beta1, beta2, epsilon;
  std::optional<size_t> shared;  // a weight that lies where another does: the first one's number
  std::optional<size_t> master;  // a weight's fp32 one, of the checkpoint's tensors
};

struct WholeCheckpoint {
  struct Part {
    InputReport* report = nullptr;
    std::unique_ptr<InputFile> file;
    std::string path;  // of the file; the report may be its index's
  };
  std::vector<Part> files;
  std::vector<SitedTensor> tensors;
  std::vector<double> rates;  // of the optimizer's parameter groups
  std::optional<double> optimizer_step, scheduler_step;
  uint64_t parameters = 0;  // that the optimizer's groups list
  // Of the parameters that an optimizer keeps state of or lists, the share whose name is known; 0:
  // there is no optimizer's state.
  double named = 0;
};

// What the numbers of an optimizer's parameters were found to mean in the checkpoints before, of
// one (run, rank): a parameter whose state is gone has no shape to be known by.
struct KnownNames {
  struct OfFile {
    std::vector<std::vector<int64_t>> groups;
    std::map<int64_t, std::string> names;
  };
  std::map<size_t, OfFile> files;  // by their order
};

// Of the files of one (run, step, rank). A file that changed since it was planned and cannot be
// read any more gets a problem. What is said of all of it (parameters named by order) goes to the
// notes of the first file with an optimizer.
WholeCheckpoint ReadCheckpoint(std::span<const PlannedFile> plans, KnownNames* known);

}  // namespace plumbline::audit
