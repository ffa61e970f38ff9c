// Removes text that loggers and collectors add to a line of a trainer.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns the line in a JSON object that a collector writes per line: docker's `log`, CloudWatch's
// `message`, journald's `MESSAGE`, Loki's `line`, structlog's `event`. fluentd writes a time and a
// tag before the object. Unescapes the line into *scratch. Returns "" for any other text.
std::string_view LineInJson(std::string_view line, std::string* scratch);

// Returns the line without ray's prefix, "(TrainWorker pid=12, ip=10.0.0.2) step 10 loss 2.5", or
// Kaldi's, "LOG (nnet3-train[5.5]:PrintTotalStats():nnet-training.cc:378) ".
std::string_view WithoutActor(std::string_view line);

// Returns the line without its source: "step 10 loss 2.5      train.py:52" (rich's handler). Sets
// *had if it had one.
std::string_view WithoutSource(std::string_view line, bool* had);

// Returns the line with '|' for the vertical rules of boxes drawn by rich and others. Uses *scratch
// if there are any.
std::string_view WithBars(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
