# Warnings of our own targets; an error for developers, so that nothing lands with one.
add_library(fewbit_warnings INTERFACE)
target_compile_options(fewbit_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow>)
if(FEWBIT_DEVELOPER)
  target_compile_options(fewbit_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# One product, one rounding: results must not depend on whether a compiler fuses a*b+c by itself.
target_compile_options(fewbit_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# g++ 12 loses track of std::optional under the sanitizers' instrumentation.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  target_compile_options(fewbit_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
# g++ 12 sees overlaps in std::string at -O3 that are not there (GCC bug 105651).
target_compile_options(fewbit_warnings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
