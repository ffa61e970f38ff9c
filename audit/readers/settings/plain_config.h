// Settings of a run that its logger wrote into a small file beside its series.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Adds "config: NAME" for each number, text and flag of `name`, a path from the folder of `file`. A
// file that is absent, too large or of another form adds nothing: its series count without it.
// Of YAML the form of W&B and SwanLab is read, `NAME:` with an indented `value: VALUE` below.
void TakeJsonConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);
void TakeYamlConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);

}  // namespace plumbline::audit
