# FEWBIT_FOLDERS of src/, in the order of the data's path, FEWBIT_FILES of other folders, and
# FEWBIT_LIBRARIES, which they use.
find_package(Threads REQUIRED)
if(NOT FEWBIT_EMULATED)
  set(FEWBIT_FOLDERS core device checkpoint scheme canonical quantize layout moe kernels backends select prepared model)
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(fmt 9 REQUIRED)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
  set(FEWBIT_LIBRARIES $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> fmt::fmt PkgConfig::PCRE2 PkgConfig::XXHASH)
  return()
endif()
# For another CPU's tests under emulation: the folders that a layer runs through. They need only fmt,
# as a header, so that no library of that CPU has to be installed. What they name of other folders
# and these files is in functions that nothing here calls: the linker drops these, or tells which
# symbol is missing.
set(FEWBIT_FOLDERS core device canonical layout moe kernels backends select)
set(FEWBIT_FILES src/checkpoint/gguf_types.cpp src/scheme/scheme_text.cpp)
add_library(fmt::fmt INTERFACE IMPORTED)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
set(FEWBIT_LIBRARIES fmt::fmt)
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections)
